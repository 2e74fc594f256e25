"""What tests of programs on braidlog need: a clock that stands still, a disk that remembers, a disk that fails, and
processes that can be struck down."""

from braidlog.testing.clock import VirtualClock
from braidlog.testing.cluster import Cluster
from braidlog.testing.files import FaultyFiles, RecordingFiles

__all__ = ["Cluster", "FaultyFiles", "RecordingFiles", "VirtualClock"]
