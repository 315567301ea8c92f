"""Reads of materialised packs that bring wrong bytes: on the way, or in the set."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lake import Lake
from lake.errors import CorruptDataError
from loader import PackLoader
from loader.materialized.materialize import materialize
from loader.proof.digest import batch_digest
from loader.storage.pack_tiers import PackTiers
from packing.plan import Plan
from packing.plan_store import save_plan
from tests.loader import scenes

_INLINE: dict[str, Any] = {"process": "inline", "framework": "numpy"}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = scenes.scene_lake(tmp_path)
    save_plan(lake, scenes.scene_plan(lake), "mix")
    return lake


@pytest.fixture
def plan(lake: Lake) -> Plan:
    return scenes.scene_plan(lake)


class _Flipping(PackTiers):
    """The first reads of a pack's bytes bring wrong ones, each time others."""

    wrong_reads = 0
    reads = 0

    def take(
        self, packs: Sequence[int], columns: Sequence[str], *, past_caches: bool = False
    ) -> pa.Table:
        table = super().take(packs, columns, past_caches=past_caches)
        if "data" not in columns or self.reads == self.wrong_reads:
            return table
        type(self).reads += 1
        flipped = [bytes([data[0] ^ self.reads]) + data[1:] for data in table["data"].to_pylist()]
        column = pa.array(flipped, table.schema.field("data").type)
        return table.set_column(table.schema.get_field_index("data"), "data", column)


@pytest.mark.parametrize(("wrong_reads", "sound"), [(3, True), (99, False)])
def test_damage_on_the_way_is_not_blamed_on_the_set(
    lake: Lake, plan: Plan, monkeypatch: pytest.MonkeyPatch, wrong_reads: int, *, sound: bool
) -> None:
    materialize(lake, plan, workers=0)
    monkeypatch.setattr(_Flipping, "wrong_reads", wrong_reads)
    monkeypatch.setattr(_Flipping, "reads", 0)
    monkeypatch.setattr("loader.stream.PackTiers", _Flipping)
    expected = [batch_digest(batch) for batch in PackLoader(lake, plan, **_INLINE)]
    loader = PackLoader(lake, plan, **_INLINE, materialized=True)
    if sound:
        assert [batch_digest(batch) for batch in loader] == expected
        assert _Flipping.reads == wrong_reads
    else:
        with pytest.raises(CorruptDataError, match=r"pack \d+ in .*damaged on the way") as raised:
            list(loader)
        assert "remove the set" not in str(raised.value)
