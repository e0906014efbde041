"""Labels: what training may see of them, and the state that methods keep beside them."""
