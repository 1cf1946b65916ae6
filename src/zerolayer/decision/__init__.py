"""What should live where: policies, grading, plans and the offline bound. numpy only, never a tensor."""
