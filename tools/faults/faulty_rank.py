"""The loader over a faulty lake, as a rank program of `loader.proof`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from lake.store import open_lake
from loader.proof.pack_loader_ranks import PackLoaderRanks, make_loader, reports
from loader.proof.program import RankProgram, RankSetup, Reports
from tools.faults.fault import Fault
from tools.faults.faulty_lake import Faults, faulty_lake


def faulty_program(
    ranks: PackLoaderRanks,
    faults: Sequence[Fault],
    seed: int = 0,
    **options: Any,  # noqa: ANN401 - those of `PackLoaderRanks.program`
) -> RankProgram:
    """Streams the plan inline, for the faults are in its process."""
    injected = {"faults": [asdict(fault) for fault in faults], "fault_seed": seed}
    plain = ranks.program(digests=True, process="inline", extra=injected, **options)
    return replace(plain, target="tools.faults.faulty_rank:rank")


def rank(setup: RankSetup) -> Reports:
    """Stream a rank's packs; the injected faults are among the counts."""
    arguments: Mapping[str, Any] = setup.arguments
    faults = Faults(
        [Fault(**{**raw, "methods": tuple(raw["methods"])}) for raw in arguments["faults"]],
        arguments["fault_seed"],
    )
    whole = open_lake(arguments["lake"], storage_options=arguments["storage_options"])
    with make_loader(setup, faulty_lake(whole, faults)) as loader:
        for report in reports(setup, loader):
            injected = {"injected": sum(faults.injected.values())}
            yield replace(report, counts={**report.counts, **injected})
