"""What each feature adds to the commands about all of them: the table of features names it."""
