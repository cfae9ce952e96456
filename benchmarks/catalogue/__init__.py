"""What there is to measure a memory on: how many questions each benchmark has, and the page that lists them."""
