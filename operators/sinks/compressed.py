"""Text files that may be compressed as a whole, for CSV and JSON lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa

__all__ = ["COMPRESSED_SUFFIX", "TextCompression", "compressed", "opened"]

TextCompression = Literal["none", "gzip", "zstd"]

COMPRESSED_SUFFIX: Final[dict[TextCompression, str]] = {"none": "", "gzip": ".gz", "zstd": ".zst"}


def compressed(target: Any, compression: TextCompression) -> Any:
    """Return a stream into ``target``; closing it ends the compressed data."""
    stream = target if isinstance(target, pa.NativeFile) else pa.PythonFile(target, "w")
    return stream if compression == "none" else pa.CompressedOutputStream(stream, compression)


def opened(path: Path) -> pa.NativeFile:
    """Open ``path`` and decompress it if its suffix names a codec."""
    return pa.input_stream(str(path), compression="detect")
