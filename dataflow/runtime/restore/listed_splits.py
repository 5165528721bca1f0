"""List the splits that a source has now, to find new ones; a restore does not need them."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence

from dataflow.contracts.source import Source, Split
from dataflow.errors import InputMissingWarning, user_frame
from dataflow.runtime.task.contract_checks import check_splits

__all__ = ["listed_splits"]

log = logging.getLogger("dataflow.restore")


def listed_splits(source: Source, name: str) -> Sequence[Split]:
    """Return the splits that a source lists now; none if listing them fails, because the restore does not need them."""
    try:
        return check_splits(source, name)
    except Exception as error:
        message = f"source {name!r} cannot list its splits, so new input is not detected: {error}"
        log.warning("%s", message)
        warnings.warn(message, InputMissingWarning, stacklevel=user_frame())
        return ()
