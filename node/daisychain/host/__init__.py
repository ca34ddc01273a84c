"""What this machine is and holds: hardware facts, disk, the jobs folder."""
