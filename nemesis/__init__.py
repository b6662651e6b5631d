"""What can go wrong: fault schedules as data, how to draw them, and how to inflict them."""
