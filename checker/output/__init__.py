"""Output: findings become a verdict, measures and curves. Imports all rooms but `engine`."""
