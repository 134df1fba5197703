"""The parts of a prediction that scripts alone have: phases, step time, global batch."""
