"""What `make bench` runs: the runtime beside the floor of the same machine in the same run."""
