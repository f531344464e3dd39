"""What a call goes through: prepared, authorized, run, and its output made the result that the model reads."""
