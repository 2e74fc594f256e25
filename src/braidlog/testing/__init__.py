"""What tests of programs on braidlog need: a clock that stands still, a disk that remembers, and a disk that fails."""

from braidlog.testing.clock import VirtualClock
from braidlog.testing.files import FaultyFiles, RecordingFiles

__all__ = ["FaultyFiles", "RecordingFiles", "VirtualClock"]
