"""What `npm start`, `npm test` and their kin run. For development only: nothing here is part of the package."""
