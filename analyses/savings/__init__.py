"""What following the recommendations saves the lab: realised where adopted, else potential."""
