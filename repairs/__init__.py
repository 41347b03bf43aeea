"""What changes something: plan → guard → ask → act → prove. The only package that sends a deciding request."""
