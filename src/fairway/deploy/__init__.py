"""Put a verified file to use: publish, run, serve, and callbacks for training loops."""
