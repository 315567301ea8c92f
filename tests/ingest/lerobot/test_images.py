from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pyarrow as pa
import pytest
from av.video.codeccontext import VideoCodecContext

from tests.ingest.lerobot_data import (
    decoded,
    edit_info,
    edit_rows,
    read_all,
    reasons,
    v2_data,
    write_v2,
)

KEY = "observation.images.wrist"
KIND = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def picture(number: int, codec: str) -> bytes:
    encoder = av.CodecContext.create(codec, "w")
    assert isinstance(encoder, VideoCodecContext)
    encoder.width, encoder.height = 32, 16
    encoder.pix_fmt = "rgb24" if codec == "png" else "yuvj420p"
    encoder.time_base = Fraction(1, 10)
    pixels = np.full((16, 32, 3), number * 20, np.uint8)
    frame = av.VideoFrame.from_ndarray(pixels, format="rgb24").reformat(format=encoder.pix_fmt)
    frame.pts = 0
    return b"".join(bytes(p) for p in [*encoder.encode(frame), *encoder.encode(None)])


def with_pictures(tmp_path: Path, rows: list[dict[str, object] | None]) -> Path:
    root = write_v2(tmp_path / "toy", lengths=(len(rows),), cameras=())
    camera = {"dtype": "image", "shape": [16, 32, 3], "names": ["height", "width", "channels"]}
    edit_info(root, lambda info: info["features"].update({KEY: camera}))
    edit_rows(root / v2_data(0), lambda t: t.append_column(KEY, pa.array(rows, KIND)))
    return root


@pytest.mark.parametrize(("codec", "name"), [("png", "png"), ("mjpeg", "mjpeg")])
def test_pictures_are_kept_as_they_are(tmp_path: Path, codec: str, name: str) -> None:
    pictures = [picture(n, codec) for n in range(4)]
    root = with_pictures(tmp_path, [{"bytes": data, "path": "x"} for data in pictures])
    (reading,) = read_all(root)
    assert reading.findings == ()
    video = reading.episode.cameras["wrist"]
    assert video.index.codec == name
    assert bytes(video.payload) == b"".join(pictures)
    assert video.index.step_to_frame.tolist() == [0, 1, 2, 3]
    assert sorted(decoded(video)) == [0, 1, 2, 3]


def test_a_row_without_picture_has_no_frame(tmp_path: Path) -> None:
    rows: list[dict[str, object] | None] = [
        {"bytes": picture(1, "png"), "path": None},
        None,
        {"bytes": None, "path": "nowhere.png"},
        {"bytes": picture(3, "png"), "path": None},
    ]
    (reading,) = read_all(with_pictures(tmp_path, rows))
    assert reading.episode.cameras["wrist"].index.step_to_frame.tolist() == [0, -1, -1, 1]
    assert reasons(reading.findings) == {"steps-without-frame"}


def test_pictures_in_files_inside_the_dataset(tmp_path: Path) -> None:
    root = with_pictures(tmp_path, [{"bytes": None, "path": f"images/{n}.png"} for n in range(2)])
    (root / "images").mkdir()
    for number in range(2):
        (root / f"images/{number}.png").write_bytes(picture(number, "png"))
    assert read_all(root)[0].episode.cameras["wrist"].index.num_frames == 2


def test_a_path_out_of_the_dataset_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(picture(0, "png"))
    root = with_pictures(tmp_path, [{"bytes": None, "path": "../secret.png"}])
    assert reasons(read_all(root)[0].findings) == {"no-pictures"}


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([b"GIF89a...", b"GIF89a..."], "bad-pictures"),
        ([picture(0, "png"), picture(0, "mjpeg")], "bad-pictures"),
        ([picture(0, "png")[:40]], "bad-pictures"),
        ([b"", b""], "no-pictures"),
    ],
)
def test_bad_pictures_cost_the_camera(tmp_path: Path, rows: list[bytes], reason: str) -> None:
    root = with_pictures(tmp_path, [{"bytes": data, "path": None} for data in rows])
    (reading,) = read_all(root)
    assert reading.episode.cameras == {}
    assert [(f.severity, f.reason, f.stream) for f in reading.findings] == [("error", reason, KEY)]


def test_undeclared_pictures_are_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    root = with_pictures(tmp_path, [{"bytes": picture(0, "png"), "path": None}])
    edit_info(root, lambda info: info["features"].pop(KEY))
    (finding,) = read_all(root)[0].findings
    assert (finding.severity, finding.reason) == ("error", "undeclared-camera")
    assert "declare it" in finding.detail
