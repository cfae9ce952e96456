"""What each objective claims, put to the test on a model small enough to be trained hundreds of times."""
