"""The dashboard: pages that are filled in the browser from the public REST API."""
