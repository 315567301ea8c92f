"""Decoding with torchcodec: on the CPU the same bytes as with PyAV; on a GPU near them."""

import importlib
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from lake import CameraVideo, Lake
from lake.errors import VideoError
from lake.pixels import PixelConverter
from lake.video_decode import FrameDecoder
from lake.video_runs import RunTable
from loader import LoaderError, PackLoader, on_device
from loader.assembly.shape import BatchShape
from loader.decode import torchcodec_frames
from loader.decode.torchcodec_frames import TorchcodecFrames
from loader.materialized.materialize import materialize
from loader.observe.metrics import LoaderMetrics
from loader.torch_face import Batch
from packing.plan import Plan
from packing.plan_store import save_plan
from tests.loader.decode.coded_clips import ENCODERS, coded_clip
from tests.loader.scenes import digest, scene_lake, scene_plan
from tests.loader.video_kinds import bframe_video


def _why_not() -> str:
    try:
        torchcodec_frames.video_decoder()
    except LoaderError as error:
        return str(error)
    return ""


# Where CI is set they must run: `make test` brings torchcodec and the FFmpeg that it needs.
needs_torchcodec = pytest.mark.skipif(
    bool(_why_not()) and not os.environ.get("CI"), reason=_why_not()
)
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")

CLIPS: dict[str, Callable[[], CameraVideo]] = {
    **{codec: (lambda codec=codec: coded_clip(codec)) for codec in ENCODERS},  # type: ignore[misc]
    "open groups": lambda: bframe_video(24),
}


def _frames(device: str = "cpu", size: tuple[int, int] | None = None) -> TorchcodecFrames:
    shape = BatchShape(
        tokens=1, segments=1, max_seqlen=1, max_seqlen_action=1, max_seqlen_kv=1,
        state_size=1, action_size=1, image_size=size, image_format="rgb",
    )  # fmt: skip
    return TorchcodecFrames(shape, device, LoaderMetrics())


def _both(
    video: CameraVideo, wanted: list[int], size: tuple[int, int] | None = None, device: str = "cpu"
) -> tuple[dict[int, Any], dict[int, Any]]:
    """The wanted frames by PyAV and by torchcodec."""
    offsets, by_pyav, by_torchcodec = video.index.packet_offsets(), {}, {}
    converter = PixelConverter(size)
    for run in RunTable.of(video.index).runs(wanted):
        data = video.payload[offsets[run.first_packet] : offsets[run.stop_packet]]
        for ordinal, frame in FrameDecoder().decode(video.index, run, data):
            by_pyav[ordinal] = np.empty((3, *converter.output_size(frame)), np.uint8)
            converter.rgb(frame, by_pyav[ordinal])
        for ordinal, picture in _frames(device, size).decode(video.index, run, data):
            by_torchcodec[ordinal] = picture.cpu().numpy()
    return by_pyav, by_torchcodec


@needs_torchcodec
@pytest.mark.parametrize("wanted", [[0], [23], [5, 6], [2, 9, 11, 17], list(range(24))])
@pytest.mark.parametrize("clip", list(CLIPS))
def test_unscaled_pixels_are_pyav_s(clip: str, wanted: list[int]) -> None:
    by_pyav, by_torchcodec = _both(CLIPS[clip](), wanted)
    assert list(by_torchcodec) == wanted
    for ordinal, picture in by_pyav.items():
        assert np.array_equal(by_torchcodec[ordinal], picture), ordinal


@needs_torchcodec
@pytest.mark.parametrize("size", [(32, 40), (30, 50), (100, 90)])
def test_scaled_pixels_are_near(size: tuple[int, int]) -> None:
    by_pyav, by_torchcodec = _both(coded_clip("h264"), list(range(24)), size)
    for ordinal, picture in by_pyav.items():
        scaled = by_torchcodec[ordinal]
        assert scaled.shape == (3, *size)
        assert np.abs(scaled.astype(int) - picture).mean() < 4


@needs_torchcodec
def test_damaged_packets_are_an_error_that_names_them() -> None:
    video = coded_clip("h264")
    (run,) = RunTable.of(video.index).runs([6])
    size = int(video.index.packet_offsets()[run.stop_packet])
    with pytest.raises(VideoError, match=r"packets 0\.\.\d+ \(h264\): torchcodec"):
        list(_frames().decode(video.index, run, bytes(size)))


@needs_torchcodec
@pytest.mark.parametrize("image_size", [None, (24, 32)])
def test_batches_are_those_of_pyav(scene: Lake, plan: Plan, image_size: Any) -> None:
    options: dict[str, Any] = {"process": "inline", "image_size": image_size}
    with PackLoader(scene, plan, **options) as loader:
        by_pyav, counts = list(loader), dict(loader.metrics.counts)
    with PackLoader(scene, plan, decode_device="cpu", **options) as loader:
        by_torchcodec = list(loader)
        assert dict(loader.metrics.counts) == counts
        assert loader.next_step == plan.num_steps
    for ours, reference in zip(by_torchcodec, by_pyav, strict=True):
        if image_size is None:
            assert digest(ours) == digest(reference)
        else:
            assert [bucket.shape for bucket in ours.images] == [
                bucket.shape for bucket in reference.images
            ]
            same = {"images.0": reference.images[0]} if reference.images else {}
            assert digest(ours.with_arrays({**dict(ours.arrays()), **same})) == digest(reference)


@needs_torchcodec
def test_materialised_packs_and_batches_copied_ahead(tmp_path: Path) -> None:
    lake = scene_lake(tmp_path)
    plan = scene_plan(lake, epochs=1)
    save_plan(lake, plan, "mix")
    materialize(lake, plan)
    with PackLoader(lake, plan, process="inline") as loader:
        expected = [digest(batch) for batch in loader]
    with PackLoader(lake, plan, process="inline", materialized=True, decode_device="cpu") as loader:
        batches = on_device(loader, "cpu")
        moments = [(digest(batch), loader.next_step) for batch in batches]
    assert [each for each, _ in moments] == expected
    assert [step for _, step in moments] == [(n + 1) // 3 for n in range(len(expected))]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"process": "child"}, "use process='inline'"),
        ({"image_format": "yuv"}, "gives RGB alone"),
        ({"framework": "numpy"}, "use framework='torch'"),
        ({"decode_device": "warp"}, "use 'cuda' or 'cpu'"),
        ({"decode_device": "meta"}, "decodes on 'cuda' or 'cpu'"),
    ],
)
def test_unusable_arguments(scene: Lake, plan: Plan, options: dict[str, Any], message: str) -> None:
    chosen = {"process": "inline", "decode_device": "cpu", **options}
    with pytest.raises(LoaderError, match=message):
        PackLoader(scene, plan, **chosen)


def test_no_cuda_device(scene: Lake, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(LoaderError, match="sees no CUDA device"):
        PackLoader(scene, plan, process="inline", decode_device="cuda:0")


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (ModuleNotFoundError("No module named 'torchcodec'"), r"headrace\[gpu-decode\]"),
        (OSError("libnvrtc.so.13: cannot open\nmore"), r"beside torch .*\(libnvrtc.so.13: cannot"),
        (RuntimeError("Could not load libtorchcodec."), "FFmpeg's shared libraries"),
    ],
)
def test_torchcodec_that_cannot_be_used(
    scene: Lake,
    plan: Plan,
    monkeypatch: pytest.MonkeyPatch,
    failure: Exception,
    message: str,
) -> None:
    def fail(_name: str) -> None:
        raise failure

    monkeypatch.setattr(importlib, "import_module", fail)
    with pytest.raises(LoaderError, match=message):
        PackLoader(scene, plan, process="inline", decode_device="cpu")


class OtherFrames:
    """A `VideoDecoder` that gives frames of other times than those asked for."""

    def __init__(  # the real one's
        self,
        source: bytes,  # noqa: ARG002
        *,
        device: torch.device,  # noqa: ARG002
        num_ffmpeg_threads: int,  # noqa: ARG002
    ) -> None:
        self.metadata = SimpleNamespace(begin_stream_seconds_from_content=0.0)
        self.cpu_fallback = True

    def get_frames_at(self, indices: list[int]) -> Any:
        seconds = torch.tensor([(index + 1) / 1000 for index in indices], dtype=torch.float64)
        pictures = torch.zeros(len(indices), 3, 64, 80, dtype=torch.uint8)
        return SimpleNamespace(data=pictures, pts_seconds=seconds)


def test_a_frame_of_another_time_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchcodec_frames, "video_decoder", lambda: OtherFrames)
    video = coded_clip("h264")
    (run,) = RunTable.of(video.index).runs([0, 1])
    data = video.payload[: int(video.index.packet_offsets()[run.stop_packet])]
    with pytest.raises(VideoError, match=r"left out frames of \[0, 1\]"):
        _frames().decode(video.index, run, data)


@needs_torchcodec
def test_the_fake_has_the_face_of_the_real_one() -> None:
    real = torchcodec_frames.video_decoder()
    for method in ("__init__", "get_frames_at"):
        ours = inspect.signature(getattr(OtherFrames, method)).parameters
        theirs = inspect.signature(getattr(real, method)).parameters
        for name, parameter in ours.items():
            assert theirs[name].kind == parameter.kind, (method, name)
    assert isinstance(inspect.getattr_static(real, "cpu_fallback"), property)


@pytest.mark.gpu
@needs_cuda
@needs_torchcodec
@pytest.mark.parametrize("clip", list(CLIPS))
def test_pixels_of_a_gpu_are_near_pyav_s(clip: str) -> None:
    by_pyav, by_torchcodec = _both(CLIPS[clip](), list(range(24)), device="cuda")
    for ordinal, picture in by_pyav.items():
        assert np.abs(by_torchcodec[ordinal].astype(int) - picture).mean() < 3


@pytest.mark.gpu
@needs_cuda
@needs_torchcodec
def test_batches_of_a_gpu(scene: Lake, plan: Plan) -> None:
    with PackLoader(scene, plan, process="inline") as loader:
        by_pyav = list(loader)
    seen: list[Batch] = []
    with PackLoader(scene, plan, process="inline", decode_device="cuda") as loader:
        for batch in on_device(loader, "cuda"):
            assert all(bucket.is_cuda for bucket in batch.images)
            seen.append(batch)
    for ours, reference in zip(seen, by_pyav, strict=True):
        arrays = dict(ours.to("cpu").arrays())
        for name, picture in reference.arrays():
            if name.startswith("images."):
                assert (arrays[name].int() - picture.int()).abs().float().mean() < 3
                arrays[name] = picture
        assert digest(ours.with_arrays(arrays)) == digest(reference)
