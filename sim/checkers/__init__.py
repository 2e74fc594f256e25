"""What must hold of every run, one claim in each module. A checker raises `Violated`, at once or at the end."""
