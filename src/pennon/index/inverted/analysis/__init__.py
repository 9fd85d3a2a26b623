"""From text to terms, exactly as pylance does it: both sides must find what the other has written."""
