"""The scene as MJCF text: a table, blocks, a three-axis gantry with a pointer, two cameras."""

import math
from typing import Final

from training.simulation.task import BLOCK_HALF_M, COLOURS, WORKSPACE_M, SceneConfig

TIMESTEP_S: Final = 0.004
"""One physics step, seconds."""

TIP_RADIUS_M: Final = 0.012
LOWEST_M: Final = 0.02
HIGHEST_M: Final = 0.25
_CAMERA_HEIGHT_M: Final = 1.5
_VIEW_HALF_M: Final = WORKSPACE_M + 0.06

CAMERAS: Final = ("top", "wrist")
"""Cameras of the scene: `top` is fixed above the table, `wrist` travels with the pointer."""


def scene_mjcf(config: SceneConfig) -> str:
    """MJCF of the scene.

    The pointer hangs from slide joints x, y, z with critically damped position servos, driven by
    set-points in metres. Blocks are free bodies: a careless touch pushes them away.
    Shadows are off, since they dominate the cost of software rendering.
    """
    top_fovy = 2 * math.degrees(math.atan(_VIEW_HALF_M / (_CAMERA_HEIGHT_M - BLOCK_HALF_M)))
    blocks = "\n".join(
        f"""    <body name="block_{name}" pos="0 0 {BLOCK_HALF_M}">
      <freejoint name="block_{name}"/>
      <geom name="block_{name}" type="box" size="{BLOCK_HALF_M} {BLOCK_HALF_M} {BLOCK_HALF_M}"
            mass="0.2" rgba="{" ".join(map(str, COLOURS[name]))} 1"/>
    </body>"""
        for name in config.colours
    )
    axes = (
        ("x", "1 0 0", -WORKSPACE_M, WORKSPACE_M),
        ("y", "0 1 0", -WORKSPACE_M, WORKSPACE_M),
        ("z", "0 0 1", LOWEST_M, HIGHEST_M),
    )
    joints = "\n".join(
        f'      <joint name="{name}" type="slide" axis="{axis}" range="{low} {high}"/>'
        for name, axis, low, high in axes
    )
    servos = "\n".join(
        f'    <position name="{name}" joint="{name}" kp="2500" dampratio="1"'
        f' ctrlrange="{low} {high}" forcerange="-150 150"/>'
        for name, _, low, high in axes
    )
    return f"""<mujoco model="blocks">
  <option timestep="{TIMESTEP_S}" integrator="implicitfast"/>
  <visual>
    <global offwidth="{config.image_size}" offheight="{config.image_size}"/>
    <quality shadowsize="0" offsamples="4"/>
    <headlight ambient="0.5 0.5 0.5" diffuse="0.5 0.5 0.5" specular="0 0 0"/>
  </visual>
  <worldbody>
    <geom name="table" type="plane" size="0.6 0.6 0.05" rgba="0.55 0.52 0.48 1"/>
    <camera name="top" pos="0 0 {_CAMERA_HEIGHT_M}" fovy="{top_fovy:.4f}"/>
{blocks}
    <body name="pointer" gravcomp="1">
{joints}
      <geom name="tip" type="sphere" size="{TIP_RADIUS_M}" mass="0.5" rgba="0.05 0.05 0.05 1"/>
      <geom name="rod" type="capsule" size="0.008" fromto="0 0 0.02 0 0 0.12" mass="0.5"
            rgba="0.9 0.9 0.9 1" contype="0" conaffinity="0"/>
      <camera name="wrist" pos="0 -0.10 0.14" xyaxes="1 0 0 0 0.82 0.57" fovy="75"/>
    </body>
  </worldbody>
  <actuator>
{servos}
  </actuator>
</mujoco>
"""
