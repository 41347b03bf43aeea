"""The exit statuses of `rmqtx.readers.model.exit_status`, which the library uses too."""

from rmqtx.readers.model.exit_status import *  # noqa: F403
