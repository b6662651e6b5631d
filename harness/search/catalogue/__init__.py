"""The known bugs, promises and losses, and the search that must find each of them."""
