"""What reading from storage may take: time, requests, room for a cache."""

from dataclasses import asdict, dataclass
from typing import Any

from loader.errors import LoaderError


@dataclass(frozen=True, kw_only=True)
class StorageSettings:
    """How a loader reads its lake.

    Attributes:
        cache_dir: folder on a local disk that all ranks of the node share as a cache; None for
            no cache.
        cache_bytes: what the cache may take on that disk.
        request_timeout_s: after which one request to an object store is given up and repeated.
        deadline_s: after which a read that keeps failing becomes an error. Keep it, and a minute or
            two, below the time-out of the job's collectives (NCCL's is 600 s): else other ranks die
            of that one, which names nothing.
        requests_per_node: that all ranks of the node may have under way at one store. At 25 ms
            each, 128 of them are the 5,500 a second that S3 gives.
        stall_warning_s: after which a read, or a wait for a batch, is reported with what runs.
    """

    cache_dir: str | None = None
    cache_bytes: int = 100 << 30
    request_timeout_s: float = 30.0
    deadline_s: float = 300.0
    requests_per_node: int = 128
    stall_warning_s: float = 30.0

    def __post_init__(self) -> None:
        for name in ("cache_bytes", "request_timeout_s", "deadline_s", "stall_warning_s"):
            if not getattr(self, name) > 0:
                raise LoaderError(f"storage.{name} must be positive: {getattr(self, name)}")
        if "://" in str(self.cache_dir or ""):
            raise LoaderError(f"storage.cache_dir={self.cache_dir!r}: a folder on a local disk")
        if self.requests_per_node < 1:
            raise LoaderError(f"storage.requests_per_node={self.requests_per_node}: at least 1")

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)
