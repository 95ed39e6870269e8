"""What the site shows beside the pages of docs/."""
