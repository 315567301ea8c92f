import threading

import pytest
import torch

from tests.training.attention.dense import PLAIN, assert_equals_dense
from training.attention.backend import Backend
from training.attention.per_segment import SDPA, attend
from training.attention.segments import Segments
from training.attention.varlen import named, prepared, use_backend, varlen_attention
from training.errors import ConfigError

CASE = PLAIN["unequal, full, 4 heads on 4"]


def counting() -> tuple[Backend, list[tuple[torch.dtype, ...]]]:
    """The reference, and the dtypes that it was called with."""
    seen: list[tuple[torch.dtype, ...]] = []

    def count(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, s: Segments) -> torch.Tensor:
        seen.append((q.dtype, k.dtype, v.dtype))
        return attend(q, k, v, s)

    backend = Backend(name="counting", unfit=SDPA.unfit, load=lambda: count, prepare=SDPA.prepare)
    return backend, seen


def test_without_a_choice_it_is_the_reference() -> None:
    assert_equals_dense(varlen_attention, CASE)


def test_a_backend_is_used_inside_the_context_only() -> None:
    one, seen_by_one = counting()
    other, seen_by_other = counting()
    q, k, v, _ = CASE.inputs()
    with use_backend(one):
        varlen_attention(q, k, v, CASE.segments())
        with use_backend(other):
            varlen_attention(q, k, v, CASE.segments())
        varlen_attention(q, k, v, CASE.segments())
    varlen_attention(q, k, v, CASE.segments())
    assert (len(seen_by_one), len(seen_by_other)) == (2, 1)


def test_threads_of_autograd_use_the_same_backend() -> None:
    """They compute checkpointed layers again on a GPU."""
    backend, seen = counting()
    q, k, v, _ = CASE.inputs()
    with use_backend(backend):
        thread = threading.Thread(target=varlen_attention, args=(q, k, v, CASE.segments()))
        thread.start()
        thread.join()
    assert len(seen) == 1


def test_autocast_reaches_every_backend() -> None:
    """As it reaches SDPA by itself; keys that were rotated in float32 are among the inputs."""
    backend, seen = counting()
    q, k, v, _ = CASE.inputs(torch.float32)
    with use_backend(backend), torch.autocast("cpu", torch.bfloat16):
        out = varlen_attention(q, k, v.bfloat16(), CASE.segments())
    assert seen == [(torch.bfloat16,) * 3]
    assert out.dtype == torch.bfloat16


def test_segments_are_prepared_for_the_backend_in_use() -> None:
    segments = CASE.segments()
    assert prepared(segments) is segments
    assert "masks" in vars(segments)
    assert "block_mask" not in vars(segments)
    with use_backend("flex"):
        prepared(segments)
    assert "block_mask" in vars(segments)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="'flash5'; there are: flash4, flash3, flash2, te_thd"):
        named("flash5")


def test_a_library_that_is_not_there_is_named() -> None:
    backend, seen = counting()
    q, k, v, _ = CASE.inputs()
    with use_backend(backend):
        with (
            pytest.raises(ConfigError, match=r"flash_attn_interface.*ModuleNotFoundError"),
            use_backend("flash3"),
        ):
            pass
        varlen_attention(q, k, v, CASE.segments())
    assert len(seen) == 1
