"""The pages of the documentation; ``docs.site`` builds the site from them."""
