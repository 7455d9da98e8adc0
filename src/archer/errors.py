"""The one error tree. Every class is also the standard-library error that a caller would expect.

A message says what was expected, what was found, where (file, line, field), and what to do about it.
"""


class ArcherError(Exception):
    """Base of every error that Archer raises on purpose."""


class ConfigError(ArcherError, ValueError):
    """A configuration names an unknown field, or a value that can't be used."""


class DataError(ArcherError, ValueError):
    """A data file or row can't be used; the message names the file, the line and the field."""


class TensorError(ArcherError, ValueError):
    """A tensor given to the objective has the wrong shape, dtype or contents."""


class PolicyError(ArcherError, RuntimeError):
    """A model or tokenizer can't be loaded, or can't do what was asked of it."""


class EngineError(ArcherError, RuntimeError):
    """A sampling engine failed, can't be reached, or holds other weights than it should."""


class RewardError(ArcherError, RuntimeError):
    """A scorer failed in a way that the settings do not allow to be masked."""


class IsolationError(ArcherError, RuntimeError):
    """The sandbox asked for isn't available on this machine."""


class CheckpointError(ArcherError, RuntimeError):
    """A checkpoint is incomplete, damaged, or belongs to another configuration or data set."""


class MissingDependencyError(ArcherError, ImportError):
    """An optional package is not installed; the message gives the command that installs it."""
