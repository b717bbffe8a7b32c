"""What the planner found, as documents to read and as values for a program: rendering alone."""
