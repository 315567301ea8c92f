"""What reading a damaged parquet file raises, which pyarrow documents only in part."""

from typing import Final

import pyarrow as pa

# UnicodeDecodeError: damaged column names.
PARQUET_ERRORS: Final = (pa.ArrowException, OSError, UnicodeDecodeError)
