"""Facts about the public Open X-Embodiment datasets that their files do not hold.

Rates and robots: `openx2lerobot/oxe_utils/configs.py` of github.com/Tavish9/any4lerobot (commit
6937315), all but `bridge`, `bridge_data_v2` and `droid_100`, other names of datasets listed there.
Grippers: what `prismatic/vla/datasets/rlds/oxe/transforms.py` of github.com/openvla/openvla inverts
to make 1 open, robosuite's for LIBERO; and the names of features themselves.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class PublicDataset:
    """What is known of a dataset.

    Attributes:
        rate_hz: control steps per second.
        robot: name of the robot.
    """

    rate_hz: float
    robot: str


_RLDS: Final = "_converted_externally_to_rlds"

_BY_ROBOT: Final[dict[str, dict[float, tuple[str, ...]]]] = {
    "google_robot": {3: ("fractal20220817_data",), 10: ("bc_z",)},
    "kuka_iiwa": {10: ("kuka",), 20: ("stanford_kuka_multimodal_dataset" + _RLDS,)},
    "widowx": {5: ("bridge", "bridge_oxe", "bridge_orig", "bridge_dataset", "bridge_data_v2")},
    "jaco_2": {10: ("jaco_play",)},
    "sawyer": {10: ("roboturk", "imperialcollege_sawyer_wrist_cam")},
    "hello_stretch": {
        3: ("nyu_door_opening_surprising_effectiveness",),
        3.75: ("dobbe",),
        10: ("cmu_stretch",),
    },
    "ur5": {
        5: ("berkeley_autolab_ur5",),
        10: ("columbia_cairlab_pusht_real",),
        12.5: ("asu_table_top" + _RLDS,),
    },
    "xarm": {
        2: ("ucsd_kitchen_dataset" + _RLDS,),
        3: ("nyu_rot_dataset" + _RLDS, "ucsd_pick_and_place_dataset" + _RLDS),
        5: ("berkeley_mvp" + _RLDS,),
        10: ("language_table", "utokyo_xarm_pick_and_place" + _RLDS),
    },
    "xarm_bimanual": {10: ("utokyo_xarm_bimanual" + _RLDS,)},
    "pr2": {
        10: ("utokyo_pr2_opening_fridge" + _RLDS, "utokyo_pr2_tabletop_manipulation" + _RLDS),
    },
    "multi_robot": {1: ("robo_net",)},
    "cobotta": {10: ("tokyo_u_lsmo" + _RLDS,)},
    "dlr_sara": {10: ("dlr_sara_pour" + _RLDS, "dlr_sara_grid_clamp" + _RLDS)},
    "dlr_edan": {5: ("dlr_edan_shared_control" + _RLDS,)},
    "kinova_gen3": {1: ("uiuc_d3field",)},
    "fanuc_mate": {10: ("berkeley_fanuc_manipulation",)},
    "jackal": {3: ("berkeley_gnm_recon",)},
    "rc_car": {5: ("berkeley_gnm_cory_hall",)},
    "turtlebot_2": {10: ("berkeley_gnm_sac_son",)},
    "flexiv": {10: ("rh20t",)},
    "franka": {
        3: ("nyu_franka_play_dataset" + _RLDS,),
        5: (
            *("stanford_robocook" + _RLDS, "cmu_play_fusion", "roboset"),
            *("tdroid_carrot_in_bowl", "tdroid_pour_corn_in_pot", "tdroid_flip_pot_upright"),
            *("tdroid_move_object_onto_plate", "tdroid_knock_object_over"),
            "tdroid_cover_object_with_towel",
        ),
        10: (
            *("berkeley_cable_routing", "stanford_hydra_dataset" + _RLDS),
            *("furniture_bench_dataset" + _RLDS, "cmu_franka_exploration_dataset" + _RLDS),
            *("kaist_nonprehensile" + _RLDS, "cmu_playing_with_food", "fmb_dataset"),
        ),
        15: ("taco_play", "droid", "droid_100", "droid_wipe"),
        20: (
            *("viola", "austin_buds_dataset" + _RLDS, "austin_sailor_dataset" + _RLDS),
            *("austin_sirius_dataset" + _RLDS, "maniskill_dataset" + _RLDS),
            *("iamlab_cmu_pickup_insert" + _RLDS, "utaustin_mutex"),
            *("libero_spatial_no_noops", "libero_object_no_noops", "libero_goal_no_noops"),
            "libero_10_no_noops",
        ),
        30: ("toto", "berkeley_rpt" + _RLDS),
    },
}

PUBLIC_DATASETS: Final[dict[str, PublicDataset]] = {
    name: PublicDataset(float(rate_hz), robot)
    for robot, rates in _BY_ROBOT.items()
    for rate_hz, names in rates.items()
    for name in names
}

_OPEN_1: Final = "action: 1 open, 0 closed"
_CLOSED_1: Final = "action: 1 closed, 0 open"
_GRIPPERS: Final = {
    **dict.fromkeys(("bridge_oxe", "bridge_orig", "bridge_dataset", "bridge_data_v2"), _OPEN_1),
    **dict.fromkeys(("droid", "droid_100", "droid_wipe"), _CLOSED_1),
    **dict.fromkeys((f"stanford_hydra_dataset{_RLDS}", f"austin_buds_dataset{_RLDS}"), _CLOSED_1),
    **dict.fromkeys(
        (name for name in PUBLIC_DATASETS if name.startswith("libero_")),
        "action: -1 open, +1 close",
    ),
}
_BY_FEATURE: Final = {
    "open_gripper": "steps/action/open_gripper: 1 open, 0 closed",
    "gripper_closedness_action": "steps/action/gripper_closedness_action: positive closes",
}


def public_dataset(name: str) -> PublicDataset | None:
    """The public dataset of this name (as TFDS calls it), None where it is none that is known."""
    return PUBLIC_DATASETS.get(name)


def gripper_convention(name: str, features: Iterable[str]) -> str | None:
    """What the gripper's values mean, None where neither its dataset nor its name says so."""
    if name in _GRIPPERS:
        return _GRIPPERS[name]
    tails = {feature.removeprefix("steps/action/") for feature in features}
    return next((text for tail, text in _BY_FEATURE.items() if tail in tails), None)
