"""Text files that may be compressed as a whole: what CSV and JSON lines have in common as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa

__all__ = ["COMPRESSED_SUFFIX", "TextCompression", "compressed", "opened"]

TextCompression = Literal["none", "gzip", "zstd"]

COMPRESSED_SUFFIX: Final[dict[TextCompression, str]] = {"none": "", "gzip": ".gz", "zstd": ".zst"}


def compressed(target: Any, compression: TextCompression) -> Any:
    """A stream into ``target``; closing it ends the compressed data."""
    stream = target if isinstance(target, pa.NativeFile) else pa.PythonFile(target, "w")
    return stream if compression == "none" else pa.CompressedOutputStream(stream, compression)


def opened(path: Path) -> pa.NativeFile:
    """The plain bytes of ``path``; its name says whether it is compressed."""
    return pa.input_stream(str(path), compression="detect")
