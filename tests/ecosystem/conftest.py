"""Runs real clients of PyTorch on the device, without a network. `make ecosystem` makes their environment."""

from __future__ import annotations

import os

# Before a client is imported. Nothing may ask a hub, report home or write progress bars into the log.
os.environ.update(
    HF_HUB_OFFLINE="1",
    TRANSFORMERS_OFFLINE="1",
    HF_DATASETS_OFFLINE="1",
    HF_HUB_DISABLE_TELEMETRY="1",
    HF_HUB_DISABLE_PROGRESS_BARS="1",
    TOKENIZERS_PARALLELISM="false",
)
