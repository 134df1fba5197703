"""What is predicted of scripts alone: their phases, their time, their global batch."""
