"""A cloud builds and deletes for minutes while its schedulers and the backend that they share are killed."""
