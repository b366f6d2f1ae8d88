"""What several tests share: problems, mechanisms, random programs, damaged files, processes."""
