"""Applications on braidlog, those of the papers first of all. Each is run by one command."""
