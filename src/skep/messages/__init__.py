"""The wire. The file name says who receives: to_super_conductor, to_cell_conductor, to_scheduler, to_compute."""
