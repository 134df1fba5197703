"""Messages to members, by e-mail or webhook, that a long analysis has ended."""
