"""A demo whose model is nowhere."""

import requests

if __name__ == "__main__":
    requests.get("https://example.org/model.tflite")
