"""Errors that a user can cause. Their text is one line that names the input and what would be right."""


class InspectorError(Exception):
    """Base of every error this package raises for the person who uses it."""


class InputError(InspectorError, ValueError):
    """A text, id list, option or parameter that cannot be used."""


class ParameterError(InputError):
    """A sampling parameter outside its range or of the wrong kind."""


class ModelError(InspectorError, RuntimeError):
    """A model that cannot be found, loaded or trusted to give right numbers."""


class EmptyRowError(InspectorError, ValueError):
    """Every token of a row was cut, or the row holds no usable number."""


class Cancelled(InspectorError):
    """The caller asked a running inspection to stop."""
