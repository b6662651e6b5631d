"""The web server that shows the runs of a store in a browser."""
