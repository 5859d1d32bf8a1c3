"""What only a real systemd can show: throwaway boxes, scenarios, mutation controls."""
