"""What reading from storage may take: time, requests, room for a cache."""

from dataclasses import asdict, dataclass
from typing import Any, Final

from loader.errors import LoaderError

_CACHE_BYTES: Final = 100 << 30
_ATTEMPT_TIMEOUTS: Final = 4  # of requests, in the attempt during which the deadline passes
_SPARE_S: Final = 60.0


@dataclass(frozen=True, kw_only=True)
class StorageSettings:
    """How a loader reads its lake.

    Attributes:
        cache_dir: folder on a local disk that all ranks of the node share as a cache; None for
            no cache.
        cache_bytes: what the cache may take on that disk; only with `cache_dir`.
        request_timeout_s: after which one request to an object store is given up and repeated.
        deadline_s: after which a read that keeps failing becomes an error. Other ranks wait
            meanwhile; NCCL ends them after 600 s, or the time-out given to `init_process_group`.
        requests_per_node: that all ranks of the node may have under way at one store. At 25 ms
            each, 128 of them are the 5,500 a second that S3 gives.
        stall_warning_s: after which a read, or a wait for a batch, is reported with what runs.
        batch_timeout_s: after which a decode process that has given nothing, no error either, while
            a batch was waited for, is taken to hang and is ended. More than `deadline_s`; None for
            what a read may take to end in an error, and a minute (`patience_s`, 480 s as it is).
    """

    cache_dir: str | None = None
    cache_bytes: int = _CACHE_BYTES
    request_timeout_s: float = 30.0
    deadline_s: float = 300.0
    requests_per_node: int = 128
    stall_warning_s: float = 30.0
    batch_timeout_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("cache_bytes", "request_timeout_s", "deadline_s", "stall_warning_s"):
            if not getattr(self, name) > 0:
                raise LoaderError(f"storage.{name} must be positive: {getattr(self, name)}")
        if self.cache_dir is None and self.cache_bytes != _CACHE_BYTES:
            raise LoaderError(
                f"storage.cache_bytes={self.cache_bytes}: there is no cache; say where by cache_dir"
            )
        if "://" in str(self.cache_dir or ""):
            raise LoaderError(f"storage.cache_dir={self.cache_dir!r}: a folder on a local disk")
        if self.requests_per_node < 1:
            raise LoaderError(f"storage.requests_per_node={self.requests_per_node}: at least 1")
        if self.batch_timeout_s is not None and not self.batch_timeout_s > self.deadline_s:
            raise LoaderError(
                f"storage.batch_timeout_s={self.batch_timeout_s}: more than deadline_s"
                f" ({self.deadline_s}), or a process whose store fails would be taken to hang"
            )

    @property
    def patience_s(self) -> float:
        """Seconds for which the consumer waits for a batch of a decode process."""
        if self.batch_timeout_s is not None:
            return self.batch_timeout_s
        return self.deadline_s + _ATTEMPT_TIMEOUTS * self.request_timeout_s + _SPARE_S

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)
