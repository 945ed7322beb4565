"""Where the contract of synchronizer backends finds the data of ours."""
