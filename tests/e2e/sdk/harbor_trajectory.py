"""Reads a transcript with Harbor's own model of the Agent Trajectory Interchange Format (checked with Harbor 0.26.0).

    harbor_trajectory.py FILE
"""

import json
import sys

from harbor.models.trajectories import Trajectory

with open(sys.argv[1]) as file:
    trajectory = Trajectory.model_validate(json.load(file))
assert trajectory.final_metrics.total_steps == len(trajectory.steps)
print(f"{len(trajectory.steps)} steps of {trajectory.schema_version}")
