"""EDL's experiments on a real control plane: the scenarios of the simulator, played in real time."""
