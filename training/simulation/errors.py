"""Errors of the simulation."""

from lake.errors import HeadraceError


class SimulationError(HeadraceError):
    """The simulation cannot be built, stepped, recorded or assessed."""


class SimulatorMissingError(SimulationError):
    """MuJoCo (or h5py, or matplotlib) is not installed; names the extra."""


class RenderingUnavailableError(SimulationError):
    """No OpenGL context can be made on this machine, so cameras cannot render.

    Physics and state need none: record and assess with `cameras=()` go on without pictures.
    """


class PolicyMismatchError(SimulationError):
    """A policy returned actions of another shape, or not finite."""
